"""`bridle chat`: a terminal client over gRPC. It knows the contract and nothing of the server's code."""
