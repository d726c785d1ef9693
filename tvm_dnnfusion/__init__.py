"""DNNFusion for Apache TVM's Relay."""
