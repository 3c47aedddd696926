"""Commands that play or replay episodes, chat with an agent, or evaluate mixed teams."""
