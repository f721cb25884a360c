"""Names of the metrics of a step in TensorBoard and metrics.jsonl."""

from __future__ import annotations

# With weight decay only.
WEIGHT_DECAY = ("weight_decay/generators", "weight_decay/discriminators")
# Mean absolute errors of cycles and identities, in the units of [-1, 1]; validation only.
ERRORS = ("error/MAE(X, F(G(X)))", "error/MAE(Y, G(F(Y)))", "error/MAE(X, F(X))", "error/MAE(Y, G(Y))")
# Comparisons of images with their translations; validation only.
CHANGES = ("change/MAE(X, G(X))", "change/MAE(Y, F(Y))", "change/correlation(X, G(X))", "change/correlation(Y, F(Y))")
# Norms of a replica's gradients, which are finite only if all gradients are.
GRADIENTS = ("gradients of the generators", "gradients of the discriminators")
# With float16 only.
LOSS_SCALE = "loss_scale"
# Share of the batch that is samples, not padding.
SAMPLES = "samples"
