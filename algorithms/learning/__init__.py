"""Training step: rewards, credit, updates of critics and policies."""
