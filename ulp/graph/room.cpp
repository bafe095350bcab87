namespace ulp::graph {}
