// amqplib by EXTERNAL: node external.js PORT AUTHORITY [CERTIFICATE KEY]
'use strict';
const assert = require('node:assert/strict');
const { readFileSync } = require('node:fs');
const amqp = require('amqplib');

const [port, authority, certificate, key] = process.argv.slice(2);

async function main() {
  const connection = await amqp.connect(`amqps://127.0.0.1:${port}`, {
    ca: [readFileSync(authority)],
    ...(certificate && { cert: readFileSync(certificate), key: readFileSync(key) }),
    credentials: amqp.credentials.external(),
  });
  const channel = await connection.createConfirmChannel();
  const { queue } = await channel.assertQueue('', { exclusive: true });
  channel.sendToQueue(queue, Buffer.from('signed'));
  await channel.waitForConfirms();
  const message = await channel.get(queue, { noAck: true });
  assert.equal(message.content.toString(), 'signed');
  await connection.close();
  process.stdout.write('done');
}

main();
