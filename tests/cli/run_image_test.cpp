// SPDX-License-Identifier: Apache-2.0
// k3 run vision_patchify --image: pictures of every kind, and files that are none.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <vector>

#include "io/safetensors.h"
#include "tests/cli/command.h"

namespace k3 {
namespace {

const std::string kPictures = K3_TEST_DATA "/pictures/";

bool can_read(const std::string& name) {
  return name.ends_with(".jpg") ? K3_WITH_JPEG != 0 : K3_WITH_PNG != 0;
}

std::string run_of(const std::string& name) {
  return "run vision_patchify --backend cpu --image " + kPictures + name;
}

/// The floats of a tensor.
std::vector<float> values_of(const io::SafeTensors& file, const std::string& name) {
  const io::Entry& entry = file.tensors.at(name);
  std::vector<float> values(entry.bytes.size() / sizeof(float));
  std::memcpy(values.data(), entry.bytes.data(), entry.bytes.size());
  return values;
}

TEST(RunImage, GivesThePatchesOfTheReference) {
  const io::SafeTensors expected = io::load(kPictures + "expected.safetensors");
  for (const auto& [name, entry] : expected.tensors) {
    if (!can_read(name)) continue;
    const ScratchFile file(name);
    ASSERT_EQ(run(run_of(name) + " --out " + file.path()).code, 0) << name;
    const std::vector<float> want = values_of(expected, name);
    const std::vector<float> seen = values_of(io::load(file.path()), "out");
    // Of the large one some patches are kept.
    const std::size_t first = name == "wide.png" ? 400 * 588 : 0;
    ASSERT_GE(seen.size(), first + want.size()) << name;
    const auto at = seen.begin() + static_cast<std::ptrdiff_t>(first);
    EXPECT_TRUE(std::equal(want.begin(), want.end(), at)) << name;
    EXPECT_TRUE(name == "wide.png" || seen.size() == want.size()) << name;
  }
}

TEST(RunImage, SaysTheSizesOfTheModel) {
  if (!can_read("png")) GTEST_SKIP() << "no libpng";
  for (const auto& [name, sizes, grid] :
       {std::tuple{"1x1", "resized to 1 x 1, padded to 28 x 28", "2 x 2 patches, 1 tokens"},
        {"28x29", "resized to 28 x 29, padded to 28 x 56", "4 x 2 patches, 2 tokens"},
        {"27x27", "resized to 27 x 27, padded to 28 x 28", "2 x 2 patches, 1 tokens"},
        {"448x449", "resized to 448 x 449, padded to 448 x 476", "34 x 32 patches, 272 tokens"},
        {"7168x14", "resized to 7168 x 14, padded to 7168 x 28", "2 x 512 patches, 256 tokens"},
        {"3700x3700", "resized to 3587 x 3587, padded to 3612 x 3612",
         "258 x 258 patches, 16641 tokens"}}) {
    const Result result = run(run_of(std::string("size_") + name + ".png"));
    EXPECT_EQ(result.code, 0) << name;
    EXPECT_NE(result.out.find(sizes), std::string::npos) << result.out;
    EXPECT_NE(result.out.find(grid), std::string::npos) << result.out;
  }
}

TEST(RunImage, ABackgroundShowsThroughAlpha) {
  if (!can_read("png")) GTEST_SKIP() << "no libpng";
  const ScratchFile white("white");
  const ScratchFile green("green");
  ASSERT_EQ(run(run_of("rgba.png") + " --out " + white.path()).code, 0);
  ASSERT_EQ(run(run_of("rgba.png") + " --background 0,255,0 --out " + green.path()).code, 0);
  const std::vector<float> over_white = values_of(io::load(white.path()), "out");
  const std::vector<float> over_green = values_of(io::load(green.path()), "out");
  for (std::size_t i = 0; i < over_white.size(); ++i) {
    if (i / 196 % 3 == 1)
      EXPECT_EQ(over_green[i], over_white[i]) << i;
    else
      EXPECT_LE(over_green[i], over_white[i]) << i;
  }
  EXPECT_NE(over_green, over_white);
}

TEST(RunImage, BrokenFilesAreTwoAndSayWhy) {
  for (const auto& [name, words] : {std::pair{"truncated.png", "broken PNG"},
                                    {"damaged.png", "broken PNG"},
                                    {"size_0x5.png", "broken PNG"},
                                    {"size_1000000x1000000.png", "1 to 2^27 are taken"},
                                    {"truncated.jpg", "Premature end of JPEG file"},
                                    {"header_only.jpg", "broken JPEG"},
                                    {"cmyk.jpg", "CMYK"},
                                    {"neither.png", "neither a PNG nor a JPEG"},
                                    {"no_such.png", "No such file"},
                                    {"", "neither a PNG nor a JPEG"}}) {
    if (!can_read(name)) continue;
    const Result result = errors_of(run_of(name));
    EXPECT_EQ(result.code, 2) << name;
    EXPECT_EQ(result.out.rfind("k3: error: ", 0), 0U) << name << ": " << result.out;
    EXPECT_NE(result.out.find(words), std::string::npos) << name << ": " << result.out;
  }
}

/// Every byte of a file flipped in turn, and every length of it: right or refused, never a crash.
TEST(RunImage, SurvivesDamage) {
  for (const std::string name : {"palette.png", "grey.jpg"}) {
    if (!can_read(name)) continue;
    std::ifstream in(kPictures + name, std::ios::binary);
    const std::string whole((std::istreambuf_iterator<char>(in)), {});
    const ScratchFile file(name);
    for (std::size_t i = 0; i < whole.size(); i += 23) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ 0x5A);
      for (const std::string& bytes : {damaged, whole.substr(0, i)}) {
        std::ofstream(file.path(), std::ios::binary) << bytes;
        const int code = run("run vision_patchify --backend cpu --image " + file.path()).code;
        EXPECT_TRUE(code == 0 || code == 2) << name << " " << i << ": " << code;
      }
    }
  }
}

TEST(RunImage, MistakesAreTwoAndSayWhy) {
  if (!can_read("png")) GTEST_SKIP() << "no libpng";
  const std::string image = "--image " + kPictures + "rgb.png ";
  for (const auto& [arguments, words] :
       {std::pair<std::string, const char*>{"run situ_and_mul " + image, "takes no --image"},
        {"run vision_patchify " + image + "--in x", "--in"},
        {"run vision_patchify " + image + "--compare", "--compare"},
        {"run vision_patchify " + image + "--background 1,2", "--background"},
        {"run vision_patchify " + image + "--background 1,2,256", "--background"},
        {"run vision_patchify " + image + "--background 1,2,3,4", "--background"},
        {"run vision_patchify " + image + "--set patch_size=13", "multiple of patch_size"},
        {"run vision_patchify --background 1,2,3", "--image"}}) {
    const Result result = errors_of(arguments);
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_NE(result.out.find(words), std::string::npos) << arguments << ": " << result.out;
  }
}

TEST(RunImage, AFormatWithoutItsLibraryIsThree) {
  for (const char* name : {"rgb.png", "rgb.jpg"})
    EXPECT_EQ(errors_of(run_of(name)).code, can_read(name) ? 0 : 3) << name;
}

}  // namespace
}  // namespace k3
