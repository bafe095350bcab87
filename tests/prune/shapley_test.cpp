// shapley
