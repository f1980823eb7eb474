// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Marks the symbols that libk3 exports; everything else is hidden.
#if defined(_WIN32)
#define K3_API
#else
#define K3_API __attribute__((visibility("default")))
#endif
