"""Commands that play: one episode, an episode again, a talk with a model; and a person at a seat."""
