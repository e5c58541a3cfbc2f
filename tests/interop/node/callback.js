// amqplib's callback API against a live broker: node callback.js URL SCENARIO PREFIX
'use strict';
const assert = require('node:assert/strict');
const amqp = require('amqplib/callback_api');

const [url, scenario, prefix] = process.argv.slice(2);
const name = (noun) => `${prefix}.${noun}`;

// Throws what went wrong, and hands on what went well.
const ok = (next) => (error, ...answer) => {
  if (error) throw error;
  next(...answer);
};

const scenarios = {
  publish_consume(connection, done) {
    connection.createChannel(ok((channel) => {
      channel.assertQueue(name('queue'), { exclusive: true }, ok(({ queue }) => {
        const got = [];
        channel.consume(queue, (message) => {
          got.push(message.content.toString());
          channel.ack(message);
          if (got.length < 3) return;
          assert.deepEqual(got, ['a', 'b', 'c']);
          channel.close(ok(done));
        }, {}, ok(() => {
          for (const body of ['a', 'b', 'c']) channel.sendToQueue(queue, Buffer.from(body));
        }));
      }));
    }));
  },

  confirm_channel(connection, done) {
    connection.createConfirmChannel(ok((channel) => {
      channel.assertQueue('', { exclusive: true }, ok(({ queue }) => {
        let confirmed = 0;
        for (let number = 0; number < 50; number++) {
          channel.sendToQueue(queue, Buffer.from('x'), {}, ok(() => { confirmed++; }));
        }
        channel.waitForConfirms(ok(() => {
          assert.equal(confirmed, 50);
          channel.checkQueue(queue, ok(({ messageCount }) => {
            assert.equal(messageCount, 50);
            done();
          }));
        }));
      }));
    }));
  },

  returned(connection, done) {
    connection.createChannel(ok((channel) => {
      channel.on('return', (message) => {
        assert.equal(message.fields.replyCode, 312);
        assert.equal(message.content.toString(), 'back');
        done();
      });
      channel.publish('', name('nowhere'), Buffer.from('back'), { mandatory: true });
    }));
  },

  channel_error(connection, done) {
    connection.createChannel(ok((channel) => {
      channel.on('error', (error) => {
        assert.equal(error.code, 404);
        connection.createChannel(ok((another) => another.assertQueue('', { exclusive: true }, ok(() => done()))));
      });
      channel.checkQueue(name('nothing'), (error) => assert.ok(error));
    }));
  },

  get_and_purge(connection, done) {
    connection.createChannel(ok((channel) => {
      channel.assertQueue('', { exclusive: true }, ok(({ queue }) => {
        channel.sendToQueue(queue, Buffer.from('1'));
        channel.sendToQueue(queue, Buffer.from('2'));
        channel.get(queue, { noAck: true }, ok((message) => {
          assert.equal(message.content.toString(), '1');
          assert.equal(message.fields.messageCount, 1);
          channel.purgeQueue(queue, ok(({ messageCount }) => {
            assert.equal(messageCount, 1);
            channel.get(queue, {}, ok((nothing) => {
              assert.equal(nothing, false);
              done();
            }));
          }));
        }));
      }));
    }));
  },
};

if (scenario === '--list') {
  process.stdout.write(Object.keys(scenarios).join('\n'));
} else {
  process.on('uncaughtException', (error) => { console.error(error); process.exit(1); });
  amqp.connect(url, ok((connection) => {
    scenarios[scenario](connection, () => connection.close(ok(() => process.stdout.write('done'))));
  }));
}
