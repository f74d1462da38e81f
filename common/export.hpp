// What a shared library shows to the outside.
//
// Every library here is compiled with hidden visibility; a function or class that another library
// must see says FLASH_EXPORT. An exception class has to say it as well: without one shared
// type_info, a catch in another library may not recognise it.
#pragma once

#define FLASH_EXPORT [[gnu::visibility("default")]]

#ifdef __FAST_MATH__
#error \
    "fast-math is on: it drops the -inf and NaN rules that an online softmax stands on. Remove -ffast-math or -Ofast."
#endif
