// SPDX-License-Identifier: Apache-2.0
#include "cli/picture.h"
#include "io/safetensors.h"
#include "k3/error.h"

#if K3_WITH_JPEG

#include <csetjmp>
// jpeglib.h needs FILE and size_t from those before it.
#include <jerror.h>
#include <jpeglib.h>

namespace k3::cli {
namespace {

/// libjpeg reports an error by a call that must not return: it jumps to the latest setjmp. The
/// functions that hold one own nothing, so that the jump skips no destructor.
class JpegFile {
 public:
  explicit JpegFile(std::FILE* file) : file_(file) {
    jpeg_.err = jpeg_std_error(&errors_);
    jpeg_.client_data = this;
    errors_.error_exit = [](j_common_ptr jpeg) { fail(jpeg); };
    errors_.emit_message = on_message;
  }
  ~JpegFile() { jpeg_destroy_decompress(&jpeg_); }
  JpegFile(const JpegFile&) = delete;
  JpegFile& operator=(const JpegFile&) = delete;

  /// Each false on an error.
  bool read_header();
  bool read_rows(std::uint8_t* pixels);

  [[nodiscard]] const char* error() const { return error_; }
  [[nodiscard]] unsigned width() const { return jpeg_.image_width; }
  [[nodiscard]] unsigned height() const { return jpeg_.image_height; }
  [[nodiscard]] bool is_grey_or_rgb() const {
    return jpeg_.jpeg_color_space == JCS_GRAYSCALE || jpeg_.jpeg_color_space == JCS_RGB ||
           jpeg_.jpeg_color_space == JCS_YCbCr;
  }

 private:
  [[noreturn]] static void fail(j_common_ptr jpeg) {
    auto* const self = static_cast<JpegFile*>(jpeg->client_data);
    jpeg->err->format_message(jpeg, self->error_);
    std::longjmp(self->jump_, 1);
  }
  /// Data that is missing is only a warning there: what stands in for it would be grey.
  static void on_message(j_common_ptr jpeg, int level) {
    const int code = jpeg->err->msg_code;
    if (level < 0 && code != JWRN_EXTRANEOUS_DATA && code != JWRN_ADOBE_XFORM &&
        code != JWRN_JFIF_MAJOR)
      fail(jpeg);
  }

  std::FILE* file_;
  jpeg_decompress_struct jpeg_ = {};
  jpeg_error_mgr errors_ = {};
  std::jmp_buf jump_ = {};
  char error_[JMSG_LENGTH_MAX] = {};
};

bool JpegFile::read_header() {
  if (setjmp(jump_) != 0) return false;
  jpeg_create_decompress(&jpeg_);
  jpeg_stdio_src(&jpeg_, file_);
  jpeg_read_header(&jpeg_, TRUE);
  return true;
}

bool JpegFile::read_rows(std::uint8_t* pixels) {
  if (setjmp(jump_) != 0) return false;
  jpeg_.out_color_space = JCS_RGB;
  jpeg_start_decompress(&jpeg_);
  while (jpeg_.output_scanline < jpeg_.output_height) {
    JSAMPROW row = pixels + std::size_t{3} * jpeg_.output_width * jpeg_.output_scanline;
    jpeg_read_scanlines(&jpeg_, &row, 1);
  }
  jpeg_finish_decompress(&jpeg_);
  return true;
}

}  // namespace

Picture picture::read_jpeg(std::FILE* file, const std::string& name) {
  JpegFile jpeg(file);
  const auto fail = [&] { throw io::FileError(name + ": broken JPEG: " + jpeg.error()); };
  if (!jpeg.read_header()) fail();
  if (!jpeg.is_grey_or_rgb())
    throw io::FileError(name + ": a JPEG of other colours than grey or RGB (CMYK as a rule)");
  Picture picture = allocate(name, jpeg.width(), jpeg.height(), 3);
  if (!jpeg.read_rows(picture.pixels.data())) fail();
  return picture;
}

}  // namespace k3::cli

#else

k3::cli::Picture k3::cli::picture::read_jpeg(std::FILE*, const std::string& name) {
  throw UnsupportedError(name + ": this build reads no JPEG: it was made without libjpeg");
}

#endif  // K3_WITH_JPEG
