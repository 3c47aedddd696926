"""The gradient-variance bench: how good advantages are for frozen policies, by critic and trace, without training."""
