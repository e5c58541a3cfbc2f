"""The HTTP API: RabbitMQ's management API in shape and meaning, more of our own, and metrics.

    browser, rabbitmqadmin, Prometheus  --HTTP-->  this process  --AMQP, internal-->  the broker

It is a process of its own, which server/process/management_process.py starts: neither JSON nor HTTP costs the
broker's loop.

    app.py         finds the endpoint of a request, asks who it is, and calls it
    endpoints/     what a request does
    requests/      a request on its way to the endpoint, and lists as it asks for them
    broker_state/  the way to the broker, what is known of it, and how that looks in JSON

Begin with app.py.
"""
