"""What administrators change while the broker runs: users, permissions, limits, virtual hosts.

One model serves all who administer: services over AMQP, HTTP, the command line. What the settings say is
fixed here; what is changed at run time lies in the journal beside the topology. policies.py, beside the
virtual host, has policies. Begin with administration.py.
"""
