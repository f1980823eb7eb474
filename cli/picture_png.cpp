// SPDX-License-Identifier: Apache-2.0
#include "cli/picture.h"
#include "io/safetensors.h"
#include "k3/error.h"

#if K3_WITH_PNG

#include <png.h>

#include <algorithm>
#include <cstring>

namespace k3::cli {
namespace {

/// libpng reports an error by a jump to the latest setjmp. The functions that hold one own nothing,
/// so that the jump skips no destructor.
class PngFile {
 public:
  explicit PngFile(std::FILE* file) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    file_ = file;
  }
  ~PngFile() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngFile(const PngFile&) = delete;
  PngFile& operator=(const PngFile&) = delete;

  /// Each false on an error.
  bool read_header();
  bool read_rows(png_bytep* rows);

  [[nodiscard]] const char* error() const { return error_; }
  [[nodiscard]] png_uint_32 width() const { return png_get_image_width(png_, info_); }
  [[nodiscard]] png_uint_32 height() const { return png_get_image_height(png_, info_); }
  [[nodiscard]] int channels() const { return png_get_channels(png_, info_); }
  [[nodiscard]] std::size_t row_bytes() const { return png_get_rowbytes(png_, info_); }

 private:
  static void on_error(png_structp png, png_const_charp text) {
    auto* const self = static_cast<PngFile*>(png_get_error_ptr(png));
    std::strncpy(self->error_, text, sizeof(self->error_) - 1);
    png_longjmp(png, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}

  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::FILE* file_ = nullptr;
  char error_[200] = "out of memory";
};

bool PngFile::read_header() {
  if (png_ == nullptr || info_ == nullptr || setjmp(png_jmpbuf(png_)) != 0) return false;
  png_init_io(png_, file_);
  png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // the caller looks at the size
  png_read_info(png_, info_);
  png_set_expand(png_);  // palettes, fewer than 8 bits, and transparency as alpha
  png_set_strip_16(png_);
  png_set_gray_to_rgb(png_);
  png_set_interlace_handling(png_);
  png_read_update_info(png_, info_);
  return true;
}

bool PngFile::read_rows(png_bytep* rows) {
  if (setjmp(png_jmpbuf(png_)) != 0) return false;
  png_read_image(png_, rows);
  return true;
}

}  // namespace

Picture picture::read_png(std::FILE* file, const std::string& name) {
  PngFile png(file);
  const auto fail = [&] { throw io::FileError(name + ": broken PNG: " + png.error()); };
  if (!png.read_header()) fail();
  Picture picture = allocate(name, png.width(), png.height(), png.channels());
  const std::size_t row_bytes = png.row_bytes();
  if (picture.channels < 3 ||
      row_bytes * static_cast<std::size_t>(picture.height) != picture.pixels.size())
    throw io::FileError(name + ": a PNG of an unknown kind");
  std::vector<png_bytep> rows;
  for (int y = 0; y < picture.height; ++y)
    rows.push_back(picture.pixels.data() + static_cast<std::size_t>(y) * row_bytes);
  if (!png.read_rows(rows.data())) fail();
  return picture;
}

}  // namespace k3::cli

#else

k3::cli::Picture k3::cli::picture::read_png(std::FILE*, const std::string& name) {
  throw UnsupportedError(name + ": this build reads no PNG: it was made without libpng");
}

#endif  // K3_WITH_PNG
