"""What administrators change while the broker runs: users, permissions, virtual hosts, policies.

One model serves all who administer: services over AMQP, HTTP, the command line. What the settings say is
fixed here; what is changed at run time lies in the journal beside the topology. Begin with administration.py.
"""
