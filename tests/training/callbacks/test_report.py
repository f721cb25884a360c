def test_an_epoch_is_reported_in_four_lines(fit, caplog):
    fit(1, verbose=1)
    assert caplog.messages[:3] == [
        "Epoch 001/001",
        "MAE(X, F(G(X))): 1.0000  MAE(X, F(X)): 1.0000",
        "MAE(Y, G(F(Y))): 1.0000  MAE(Y, G(Y)): 1.0000",
    ]
    assert caplog.messages[3].startswith("Elapsed: ") and len(caplog.messages) == 4
    assert {record.levelname for record in caplog.records} == {"INFO"}


def test_verbose_2_reports_all_losses(fit, caplog):
    fit(1, verbose=2)
    assert "train: loss_G/loss 1.0000  loss_G/cycle 1.0000" in caplog.text
