"""services/callbacks/signature.py: what receivers' libraries for standardwebhooks.com accept."""

from datetime import UTC, datetime

from services.callbacks import signature


def test_the_example_of_the_standard() -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    moment = datetime.fromtimestamp(1614265330, UTC)
    headers = signature.headers(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", moment, b'{"test": 2432232314}')
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_a_secret_has_the_form_that_libraries_take() -> None:
    assert signature.secret_of(bytes(24)) == "whsec_" + "A" * 32
