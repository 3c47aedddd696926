"""What is learned: objectives, the rollout collector, the trainer and one module an algorithm."""
