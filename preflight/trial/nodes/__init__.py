"""The rendezvous of several nodes: node 0 asks all nodes about their network paths, and launchers relay messages."""
