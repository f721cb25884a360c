"""CycleGAN on every GPU there is."""

import os

# TensorFlow's own notices at start ("Unable to register cuDNN factory", without any GPU) say nothing that `distribute`
# does not say better. Errors that matter come as exceptions. TF_CPP_MIN_LOG_LEVEL=0 brings the notices back.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
