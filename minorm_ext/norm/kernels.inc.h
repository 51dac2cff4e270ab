/* All loops for data STORED in one type and computed in another, REAL; kernels.h sets these and NAME. */
#include "norm/stores.inc.h"
#include "norm/sums.inc.h"
#include "norm/apply.inc.h"
#include "norm/columns.inc.h"

#undef STORED
#undef REAL
#undef INTEGER
#undef NAME
#undef WIDENED
#undef LANES
#undef VECTOR
#undef MASK
