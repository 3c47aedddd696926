"""Prompts → sampled tokens: batched decoding with cached keys and values.

One token, from top to bottom: `Decoder.generate` → `Scheduler.run` → `Steps.step` → `Engine.forward` →
`ArenaLayer.update` (within the model's forward) → `draw` → `DrawRecorder.record`.
"""
