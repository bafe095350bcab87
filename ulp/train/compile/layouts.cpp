// Two orders of the numbers of images: row-major, as all other tensors lie, and channels-last, where a row is
// a pixel.
#include <algorithm>

#include "ulp/train/compile/builder.h"

namespace ulp::train::compiled {

const ImageSize* Builder::image_of(int matrix) const {
  const auto found = images_.find(matrix);
  return found == images_.end() ? nullptr : &found->second;
}

int Builder::make_pixels(const graph::Node& node, const std::vector<graph::SizeExpr>& sizes) {
  if (sizes.size() != 4 || !sizes[1].constant() || !sizes[2].constant() || !sizes[3].constant())
    refuse(node, "expected images [N, C, H, W] of fixed C, H and W, got ", sizes.size(), " dimensions");
  const ImageSize image{sizes[2].offset, sizes[3].offset};
  std::vector<graph::SizeExpr> pixels = {sizes[0], sizes[2], sizes[3], sizes[1]};
  const int made = shaped(node, pixels, Home::arena);
  images_[made] = image;
  return made;
}

int Builder::make_as(const graph::Node& node, const graph::Value& value, int like) {
  if (image_of(like) == nullptr) return make(node, value);
  if (!value.meta) refuse(node, "expected a graph that knows its sizes, got none");
  if (value.meta->dtype != at::kFloat) refuse(node, "expected results of float32, got ", value.meta->dtype);
  return make_pixels(node, value.meta->sizes);
}

int Builder::stored(const graph::Node& node, const graph::Argument& argument) {
  const int found = found_matrix(node, argument);
  return image_of(found) != nullptr ? found : padded(matrix(node, argument));
}

int Builder::in_memory(const graph::Node& node, std::string_view argument) {
  const int found = found_matrix(node, node.arg(argument));
  return image_of(found) != nullptr ? found : matrix(node, argument);
}

int Builder::stored(const graph::Node& node, std::string_view argument) {
  return stored(node, node.arg(argument));
}

bool Builder::takes_images(const graph::Node& node, std::string_view argument) const {
  if (!node.output()->meta || node.output()->meta->sizes.size() != 4) return false;
  const std::vector<graph::SizeExpr>& wanted = node.output()->meta->sizes;
  const auto lies_as_images = [&](const graph::Value* read) {
    const auto found = matrices_.find(read);
    return found != matrices_.end() && image_of(found->second) != nullptr;
  };
  if (std::ranges::none_of(node.reads(), lies_as_images)) return false;
  const std::vector<graph::SizeExpr> own = sizes(node, argument);
  if (own == wanted) return true;
  const graph::SizeExpr one{.offset = 1};
  if (own.size() < 3 || own.size() > 4 || !wanted[1].constant()) return false;
  const size_t channel = own.size() - 3;
  if (!(own[channel] == wanted[1] && own[channel + 1] == one && own[channel + 2] == one)) return false;
  return channel == 0 || own[0] == one || own[0] == wanted[0];
}

int Builder::broadcast_pixels(const graph::Node& node, std::string_view argument) {
  const std::vector<graph::SizeExpr> own = sizes(node, argument), &wanted = node.output()->meta->sizes;
  if (own == wanted) return pixels(node, argument);
  const int made = make_pixels(node, wanted);
  const graph::SizeExpr one{.offset = 1};
  if (own.size() == 4 && !(own[0] == one)) {  // a row for each image: the gradient of a sum over its pixels
    const int x = pixels(node, argument);
    const ImageSize image = *image_of(made);
    kernels::StepPool pool{.in_height = image.height, .in_width = image.width, .channels = at(made).width};
    pool.adaptive = true;
    pool.divisor = 1;
    const int shape = add_pool(pool);
    set_needs_gradient(made, needs_gradient(x));
    emit({.op = Op::average_pool_gradient, .out = made, .a = x, .shape = shape});
    on_backward(made, [this, x, shape](int gradient) {
      contribute(x, false, [&](int out, bool) {
        emit({.op = Op::average_pool, .out = out, .a = gradient, .shape = shape});
      });
    });
    return made;
  }
  const int row = reshaped(padded(node, argument), RowCount{}, at(made).width);
  set_needs_gradient(made, needs_gradient(row));
  emit({.op = Op::repeat_rows, .out = made, .a = row});
  on_backward(made, [this, row](int gradient) {
    contribute(row, true, [&](int out, bool adds) {
      emit({.op = Op::column_sums, .out = out, .a = gradient, .adds = adds});
    });
  });
  return made;
}

int Builder::pixels(const graph::Node& node, const graph::Argument& argument) {
  const int found = found_matrix(node, argument);
  if (image_of(found) != nullptr) return found;
  const auto cached = pixels_of_.find(found);
  if (cached != pixels_of_.end()) return cached->second;
  const int x = matrix(node, argument);
  std::vector<graph::SizeExpr> sizes;
  if (argument.is_value()) sizes = sizes_of(node, *argument.value);
  const int made = make_pixels(node, sizes);
  const ImageSize image = *image_of(made);
  set_needs_gradient(made, needs_gradient(x));
  emit({.op = Op::to_pixels, .out = made, .a = x, .from = image.height, .to = image.width});
  on_backward(made, [this, x, image](int gradient) {
    contribute(x, false, [&](int out, bool) {
      emit({.op = Op::from_pixels, .out = out, .a = gradient, .from = image.height, .to = image.width});
    });
  });
  pixels_of_[found] = made;
  return made;
}

int Builder::pixels(const graph::Node& node, std::string_view argument) {
  return pixels(node, node.arg(argument));
}

void Builder::add_from_pixels(int to, int from) {
  const ImageSize image = *image_of(from);
  set_needs_gradient(to, needs_gradient(from));
  emit({.op = Op::from_pixels, .out = to, .a = from, .from = image.height, .to = image.width});
  on_backward(to, [this, from, image](int gradient) {
    contribute(from, false, [&](int out, bool) {
      emit({.op = Op::to_pixels, .out = out, .a = gradient, .from = image.height, .to = image.width});
    });
  });
}

int Builder::row_major(const graph::Node& node, const graph::Value& value, int matrix) {
  const auto cached = row_major_of_.find(matrix);
  if (cached != row_major_of_.end()) return cached->second;
  const int made = make(node, value);
  add_from_pixels(made, matrix);
  row_major_of_[matrix] = made;
  return made;
}

void Builder::set_viewed(const graph::Node& node, std::string_view argument) {
  const graph::Argument& given = node.arg(argument);
  const int found = found_matrix(node, given);
  const ImageSize* image = image_of(found);
  if (image == nullptr) return set_reshaped(node, padded(matrix(node, given)));
  if (!node.output()->meta) refuse(node, "expected a graph that knows its sizes, got none");
  if (node.output()->meta->sizes == sizes_of(node, *given.value)) return set(*node.output(), found);
  const int made = make(node, *node.output());
  if (image->height * image->width == 1 && alike(made, found)) {  // a pixel is an image
    const int viewed = make_alias(found);
    images_.erase(viewed);
    set(*node.output(), viewed);
    return on_backward(viewed, [this, found](int gradient) { pass_on(found, gradient); });
  }
  if (at(made).width % image->width != 0) return set_reshaped(node, row_major(node, *given.value, found));
  add_from_pixels(made, found);
  set(*node.output(), made);
}

}  // namespace ulp::train::compiled
