"""Calls the Stripe API at a base address, and prints the result of each case as a line of JSON.

The SDK is unmodified. The script sets the base address, the number of retries and, for one case, the timeout.
"""

import json
import logging
import sys
from concurrent.futures import ThreadPoolExecutor

import stripe

base, caller, *cases = sys.argv[1:]


class SentRequests(logging.Handler):
    """Counts the requests that the SDK sends, by its log lines."""

    def emit(self, record):
        message = record.getMessage()
        self.count += "Request to Stripe api" in message or "Initiating retry" in message


sent = SentRequests()
logging.getLogger("stripe").addHandler(sent)
logging.getLogger("stripe").setLevel(logging.INFO)


def client(**settings):
    return stripe.StripeClient(
        f"sk_test_{caller}", base_addresses={"api": base}, max_network_retries=2, **settings
    )


patient = client()
impatient = client(http_client=stripe.RequestsClient(timeout=1))


def params(case, **more):
    return {"metadata": {"case": case, "order": f"{caller}-{case}"}, **more}


def money(case, amount=1000):
    return params(case, amount=amount, currency="eur")


def key(case):
    return {"idempotency_key": f"{caller}-{case}"}


def mismatch():
    first = patient.v1.charges.create(money("mismatch"), key("mismatch"))
    return [first, patient.v1.charges.create(money("mismatch", 2000), key("mismatch"))]


def concurrent():
    def create(_):
        return patient.v1.payment_intents.create(money("concurrent"), key("concurrent"))

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(create, range(2)))


CASES = {
    "plain": lambda: [patient.v1.customers.create(params("plain", name="Jane"))],
    "fail-first": lambda: [patient.v1.payment_intents.create(money("fail-first"))],
    "drop-first": lambda: [patient.v1.charges.create(money("drop-first"))],
    "slow": lambda: [impatient.v1.charges.create(money("slow"))],
    "mismatch": mismatch,
    "concurrent": concurrent,
}


def described(error):
    code = error.error.code if error.error else None
    return {"name": type(error).__name__, "status": error.http_status, "code": code}


for case in cases:
    sent.count = 0
    objects, error = [], None
    try:
        objects = CASES[case]()
    except stripe.StripeError as raised:
        error = described(raised)
    replayed = sum("idempotent-replayed" in created.last_response.headers for created in objects)
    ids = [created.id for created in objects]
    line = {"case": case, "ids": ids, "replayed": replayed, "sent": sent.count, "error": error}
    print(json.dumps(line), flush=True)
