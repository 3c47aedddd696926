"""Commands that play or replay an episode, chat with a trained agent, or evaluate mixed teams."""
