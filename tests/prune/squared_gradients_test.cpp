// squared_gradients
