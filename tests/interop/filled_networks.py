"""Networks of this package with the weights of a state dict."""

from cyclegan.config import Config
from cyclegan.interop.discriminator_layout import find_discriminator
from cyclegan.interop.generator_layout import find_generator
from cyclegan.interop.weights import copy_weights
from cyclegan.networks.discriminators import make_discriminator
from cyclegan.networks.generators import make_generator


def filled(state):
    """Return (network of this package, its layout) for a state dict."""
    is_generator = "model.1.weight" in state or "model.model.0.weight" in state
    layout = (find_generator if is_generator else find_discriminator)(state)
    networks = Config.from_settings(**layout.settings).networks
    if is_generator:
        network = make_generator(networks, layout.channels_in, layout.channels_out)
    else:
        network = make_discriminator(networks, layout.channels_in)
    copy_weights(network, state, layout)
    return network, layout
