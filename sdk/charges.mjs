// Calls the Stripe API at a base address, and prints the result of each case as a line of JSON.
//
// The SDK is unmodified. The script sets the base address, the number of retries and, for one case, the timeout.

import Stripe from 'stripe';

const [base, caller, ...cases] = process.argv.slice(2);
const { hostname: host, port } = new URL(base);

const stripe = new Stripe(`sk_test_${caller}`, { host, port, protocol: 'http', maxNetworkRetries: 2 });
const impatient = { timeout: 1000 };

let sent = 0;
stripe.on('request', () => (sent += 1));

const params = (name) => ({ metadata: { case: name, order: `${caller}-${name}` } });
const money = (name, amount = 1000) => ({ ...params(name), amount, currency: 'eur' });
const key = (name) => ({ idempotencyKey: `${caller}-${name}` });

const CASES = {
  plain: async () => [await stripe.customers.create({ ...params('plain'), name: 'Jane' })],
  'fail-first': async () => [await stripe.paymentIntents.create(money('fail-first'))],
  'drop-first': async () => [await stripe.charges.create(money('drop-first'))],
  slow: async () => [await stripe.charges.create(money('slow'), impatient)],
  mismatch: async () => [
    await stripe.charges.create(money('mismatch'), key('mismatch')),
    await stripe.charges.create(money('mismatch', 2000), key('mismatch')),
  ],
  concurrent: () => {
    const create = () => stripe.paymentIntents.create(money('concurrent'), key('concurrent'));
    return Promise.all([create(), create()]);
  },
};

const described = (error) => ({ name: error.type, status: error.statusCode, code: error.code });

for (const name of cases) {
  sent = 0;
  let objects = [];
  let error = null;
  try {
    objects = await CASES[name]();
  } catch (raised) {
    error = described(raised);
  }
  const replayed = objects.filter((created) => 'idempotent-replayed' in created.lastResponse.headers).length;
  const ids = objects.map((created) => created.id);
  console.log(JSON.stringify({ case: name, ids, replayed, sent, error }));
}
// Open keep-alive connections would keep the process running.
process.exit();
