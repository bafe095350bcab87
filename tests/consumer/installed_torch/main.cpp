#include <ulp/amp/scaling/grad_scaler.h>

#include <iostream>

int main() {
  const ulp::amp::GradScaler scaler;
  std::cout << "scale " << scaler.get_scale() << '\n';
}
