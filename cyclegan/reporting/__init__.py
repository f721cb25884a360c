"""Output for people: TensorBoard events, metrics as JSON, sample images, HTML report, throughput, profile."""
