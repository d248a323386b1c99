//! Reference driver: an in-memory cloud with a journal, simulated kubelets and scripted faults
