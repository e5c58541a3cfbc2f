// amqplib's promise API against a live broker: node promise.js URL SCENARIO PREFIX
// Each scenario is one async function; it ends well or throws, and the exit status says which.
'use strict';
const assert = require('node:assert/strict');
const { once } = require('node:events');
const amqp = require('amqplib');

const [url, scenario, prefix] = process.argv.slice(2);
const name = (noun) => `${prefix}.${noun}`;

// A consumer whose messages can be awaited one after another.
async function inbox(channel, queue, options) {
  const waiting = [], arrived = [];
  const { consumerTag } = await channel.consume(queue, (message) => {
    const taker = waiting.shift();
    if (taker) taker(message); else arrived.push(message);
  }, options);
  const next = () => arrived.length ? Promise.resolve(arrived.shift()) : new Promise((taker) => waiting.push(taker));
  return { consumerTag, next, arrived };
}

async function refused(channel, operation, code) {
  const failed = once(channel, 'error');
  await assert.rejects(operation, (error) => error.code === code);
  const [error] = await failed;
  assert.equal(error.code, code);
}

const scenarios = {
  async publish_consume(connection) {
    const channel = await connection.createChannel();
    await channel.assertExchange(name('exchange'), 'topic', { durable: false });
    const { queue } = await channel.assertQueue('', { exclusive: true });
    await channel.bindQueue(queue, name('exchange'), 'log.*');
    const messages = await inbox(channel, queue);
    channel.publish(name('exchange'), 'log.disk', Buffer.from('full'), {
      contentType: 'text/plain', headers: { host: 'a' }, persistent: true, messageId: 'm-1', priority: 3,
      timestamp: 1700000000, correlationId: 'c-1', replyTo: 'r', type: 't', appId: 'app',
    });
    channel.publish(name('exchange'), 'other', Buffer.from('not bound'));
    channel.publish(name('exchange'), 'log.net', Buffer.alloc(0));
    const first = await messages.next();
    assert.equal(first.content.toString(), 'full');
    assert.equal(first.fields.routingKey, 'log.disk');
    assert.equal(first.fields.exchange, name('exchange'));
    assert.equal(first.fields.redelivered, false);
    const { properties } = first;
    assert.deepEqual([properties.contentType, properties.messageId, properties.priority], ['text/plain', 'm-1', 3]);
    assert.deepEqual([properties.timestamp, properties.deliveryMode, properties.headers.host], [1700000000, 2, 'a']);
    const second = await messages.next();
    assert.equal(second.content.length, 0);
    channel.ackAll();
    await channel.cancel(messages.consumerTag);
    assert.equal((await channel.checkQueue(queue)).consumerCount, 0);
  },

  async header_types(connection) {
    const channel = await connection.createChannel();
    const { queue } = await channel.assertQueue('', { exclusive: true });
    const headers = {
      text: 'snow \u2603', yes: true, no: false, nothing: null, octets: Buffer.from([0, 255]),
      byte: { '!': 'byte', value: -128 }, short: { '!': 'short', value: -32768 },
      int: { '!': 'int', value: -2147483648 }, long: { '!': 'long', value: 2 ** 52 },
      float: { '!': 'float', value: 0.5 }, double: { '!': 'double', value: 0.1 },
      time: { '!': 'timestamp', value: 1700000000 }, decimal: { '!': 'decimal', value: { digits: 314, places: 2 } },
      list: [1, 'two', [3.5, { four: 4 }]], table: { deep: { deeper: true } },
    };
    channel.sendToQueue(queue, Buffer.from('x'), { headers });
    const got = (await channel.get(queue)).properties.headers;
    const plain = (value) => (value && value['!'] && !['timestamp', 'decimal'].includes(value['!']) ? value.value : value);
    for (const key of Object.keys(headers)) assert.deepEqual(got[key], plain(headers[key]), key);
  },

  async confirms(connection) {
    const channel = await connection.createConfirmChannel();
    const { queue } = await channel.assertQueue(name('queue'), { exclusive: true });
    let confirmed = 0;
    for (let number = 0; number < 500; number++) {
      channel.sendToQueue(queue, Buffer.from(String(number)), {}, (error) => {
        assert.equal(error, null);
        confirmed++;
      });
    }
    await channel.waitForConfirms();
    assert.equal(confirmed, 500);
    assert.equal((await channel.checkQueue(queue)).messageCount, 500);
  },

  async returned_before_confirm(connection) {
    const channel = await connection.createConfirmChannel();
    const events = [];
    channel.on('return', (message) => events.push(['return', message.content.toString(), message.fields.replyCode]));
    channel.publish('', name('nowhere'), Buffer.from('back'), { mandatory: true }, () => events.push(['confirm']));
    await channel.waitForConfirms();
    assert.deepEqual(events, [['return', 'back', 312], ['confirm']]);
  },

  async prefetch(connection) {
    const channel = await connection.createChannel();
    const { queue } = await channel.assertQueue('', { exclusive: true });
    for (let number = 0; number < 6; number++) channel.sendToQueue(queue, Buffer.from(String(number)));
    await channel.prefetch(2);
    const messages = await inbox(channel, queue);
    const held = [await messages.next(), await messages.next()];
    assert.equal((await channel.checkQueue(queue)).messageCount, 4);
    assert.equal(messages.arrived.length, 0);
    channel.ack(held[1], true);
    const later = [await messages.next(), await messages.next()];
    assert.deepEqual(later.map((message) => message.content.toString()), ['2', '3']);
    await channel.prefetch(3, true);
    assert.equal((await channel.checkQueue(queue)).messageCount, 2);
  },

  async nack_and_reject(connection) {
    const channel = await connection.createChannel();
    const { queue } = await channel.assertQueue('', { exclusive: true });
    for (const body of ['a', 'b', 'c']) channel.sendToQueue(queue, Buffer.from(body));
    channel.nack(await channel.get(queue), false, true);
    const again = await channel.get(queue);
    assert.deepEqual([again.content.toString(), again.fields.redelivered], ['a', true]);
    channel.reject(again, false);
    channel.nack(await channel.get(queue), false, false);
    assert.equal((await channel.get(queue, { noAck: true })).content.toString(), 'c');
    assert.equal(await channel.get(queue), false);
  },

  async recover(connection) {
    const channel = await connection.createChannel();
    const { queue } = await channel.assertQueue('', { exclusive: true });
    channel.sendToQueue(queue, Buffer.from('again'));
    const messages = await inbox(channel, queue);
    assert.equal((await messages.next()).fields.redelivered, false);
    await channel.recover();
    assert.equal((await messages.next()).fields.redelivered, true);
  },

  async assert_and_check(connection) {
    const channel = await connection.createConfirmChannel();
    const asserted = await channel.assertQueue(name('queue'), { durable: false, autoDelete: false });
    assert.deepEqual(asserted, { queue: name('queue'), messageCount: 0, consumerCount: 0 });
    channel.sendToQueue(name('queue'), Buffer.from('1'));
    await channel.waitForConfirms();
    assert.equal((await channel.checkQueue(name('queue'))).messageCount, 1);
    assert.deepEqual(await channel.purgeQueue(name('queue')), { messageCount: 1 });
    await channel.assertExchange(name('one'), 'fanout', { durable: false });
    await channel.assertExchange(name('two'), 'headers', { durable: false });
    await channel.checkExchange(name('one'));
    await channel.bindExchange(name('two'), name('one'), '');
    await channel.bindQueue(name('queue'), name('two'), '', { 'x-match': 'any', kind: 'good' });
    channel.publish(name('one'), '', Buffer.from('yes'), { headers: { kind: 'good' } });
    channel.publish(name('one'), '', Buffer.from('no'), { headers: { kind: 'bad' } });
    assert.equal((await channel.get(name('queue'), { noAck: true })).content.toString(), 'yes');
    assert.equal(await channel.get(name('queue')), false);
    await channel.unbindQueue(name('queue'), name('two'), '', { 'x-match': 'any', kind: 'good' });
    await channel.unbindExchange(name('two'), name('one'), '');
    await channel.deleteExchange(name('one'), { ifUnused: true });
    await channel.deleteExchange(name('two'));
    assert.deepEqual(await channel.deleteQueue(name('queue')), { messageCount: 0 });
  },

  async channel_errors(connection) {
    let channel = await connection.createChannel();
    await refused(channel, channel.checkQueue(name('nothing')), 404);
    channel = await connection.createChannel();
    await refused(channel, channel.checkExchange(name('nothing')), 404);
    channel = await connection.createChannel();
    await channel.assertQueue(name('queue'), { durable: false });
    await refused(channel, channel.assertQueue(name('queue'), { durable: true }), 406);
    channel = await connection.createChannel();
    assert.equal((await channel.deleteQueue(name('queue'))).messageCount, 0);
  },

  async consumer_cancelled(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue(name('queue'), { durable: false });
    const messages = await inbox(channel, name('queue'));
    await (await connection.createChannel()).deleteQueue(name('queue'));
    assert.equal(await messages.next(), null, 'null says that the broker cancelled the consumer');
  },

  async large_message(connection) {
    const channel = await connection.createConfirmChannel();
    const { queue } = await channel.assertQueue('', { exclusive: true });
    const body = Buffer.alloc(5 * 1024 * 1024, 'flint');
    channel.sendToQueue(queue, body);
    await channel.waitForConfirms();
    const back = await channel.get(queue, { noAck: true });
    assert.ok(back.content.equals(body));
  },

  async many_channels(connection) {
    const channels = await Promise.all(Array.from({ length: 100 }, () => connection.createChannel()));
    const queues = await Promise.all(channels.map((channel) => channel.assertQueue('', { exclusive: true })));
    assert.equal(new Set(queues.map((answer) => answer.queue)).size, 100);
    await Promise.all(channels.map((channel) => channel.close()));
  },

  async update_secret(connection) {
    await connection.updateSecret(Buffer.from('guest'), 'renewed');
    await connection.createChannel();
  },
};

// These need connections of their own making.
const alone = {
  async heartbeat() {
    const connection = await amqp.connect(`${url}?heartbeat=1`);
    let failure = null;
    connection.on('error', (error) => { failure = error; });
    await new Promise((resume) => setTimeout(resume, 3500));
    assert.equal(failure, null);
    const channel = await connection.createChannel();
    assert.ok((await channel.assertQueue('', { exclusive: true })).queue);
    await connection.close();
  },

  async small_frames() {
    const connection = await amqp.connect(`${url}?frameMax=4096&channelMax=5`);
    const channel = await connection.createChannel();
    const { queue } = await channel.assertQueue('', { exclusive: true });
    const body = Buffer.alloc(50000, 'abc');
    channel.sendToQueue(queue, body);
    assert.ok((await channel.get(queue)).content.equals(body));
    await connection.close();
  },

  async wrong_password() {
    const wrong = url.replace('guest:guest', 'guest:wrong');
    await assert.rejects(amqp.connect(wrong), /403|ACCESS.REFUSED/i);
  },

  async wrong_virtual_host() {
    await assert.rejects(amqp.connect(url + encodeURIComponent(name('nowhere'))), /ConnectionClose|530/);
  },

  async connection_error() {
    const connection = await amqp.connect(url);
    const failed = once(connection, 'error');
    const closed = new Promise((resume) => connection.on('close', resume));
    // A content frame on channel 0 is nonsense: the broker must say so, and close.
    connection.connection.sendBytes(Buffer.from([3, 0, 0, 0, 0, 0, 1, 65, 0xce]));
    const [error] = await failed;
    assert.ok([501, 503, 504, 505].includes(error.code), String(error));
    await closed;
  },
};

async function main() {
  if (alone[scenario]) return alone[scenario]();
  const connection = await amqp.connect(url);
  await scenarios[scenario](connection);
  await connection.close();
}

if (scenario === '--list') {
  process.stdout.write(Object.keys({ ...scenarios, ...alone }).join('\n'));
} else {
  main().catch((error) => { console.error(error); process.exit(1); });
}
