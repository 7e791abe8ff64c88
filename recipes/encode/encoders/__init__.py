"""What turns pixels and texts into latents and embeddings; ``base`` says what every encoder can do."""
