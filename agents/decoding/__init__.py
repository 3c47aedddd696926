"""Batched decoding with a KV cache. Call chain of one token: `Decoder.generate` → `Scheduler.run` → `Steps.step` →
`Engine.forward` → `ArenaLayer.update` (in the model's forward pass) → `draw` → `DrawRecorder.record`."""
