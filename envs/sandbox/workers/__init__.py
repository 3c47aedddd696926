"""Control of the sandbox's worker processes by the trusted process."""
