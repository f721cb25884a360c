"""Known ways in which training fails without a number that is not finite: found in an epoch's figures, said once."""

NOTHING_DONE = 0.01  # |x - G(x)| on the scale of [-1, 1]: 1.3 of 255 grey levels
INVERTED = -0.5  # correlation of x and G(x)
WON = 0.01  # loss of a discriminator that is nearly always right; 0.25 (LSGAN) is one that can't tell


def find_silent_failures(train, test, adversarial="lsgan"):
    """What looks wrong in the figures of an epoch.

    Args:
        train, test: dicts of the figures of an epoch's two passes; missing ones (no step was finite) are passed over.
        adversarial: see `losses.generator_loss`; a small loss of a discriminator means nothing with wgan-gp.

    Returns:
        {name: text}: a short name for each failure, and what it means and what to try.
    """
    found = {}
    for network, back, domain in (("G", "F", "X"), ("F", "G", "Y")):
        picture = domain.lower()
        if test.get(f"change/MAE({domain}, {network}({domain}))", 1) < NOTHING_DONE:
            found[f"{network} does nothing"] = (
                f"{network}({picture}) is {picture} itself, within {NOTHING_DONE * 127.5:.1f} of 255 grey levels on average:"
                f" {network} has learned to do nothing. Try a lower --lambda_identity or --lambda_cycle"
            )
        if test.get(f"change/correlation({domain}, {network}({domain}))", 1) < INVERTED:
            found[f"{network} inverts"] = (
                f"{network}({picture}) is the negative of {picture} (their correlation is below {INVERTED}): the cycle works with"
                " inverted colours too. Start over with another --seed or a higher --lambda_identity"
            )
        if adversarial != "wgan-gp" and train.get(f"loss_{domain}/loss", 1) < WON:
            found[f"D_{domain} has won"] = (
                f"D_{domain} nearly always tells real from fake (its loss was below {WON} for an epoch), so {back} learns little"
                " from it. Try a lower --lr, or more or more varied pictures"
            )
    return found
