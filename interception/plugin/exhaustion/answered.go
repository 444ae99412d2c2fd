// SPDX-License-Identifier: Apache-2.0

package exhaustion

import "sync/atomic"

// answered is the exit code of this process plus one, once it has given its answer; 0 before. It is
// for the process's end in the middle of what comes after the answer, which the Go runtime tells a
// function without arguments of ours: a second answer would make the first one unreadable.
var answered int32 //nolint:gochecknoglobals // of the process, like its exit code

// Answered notes that the answer has been given, and the exit code that belongs to it: from now on
// the process ends by that, without another answer. It is made for plugin.Options.
func Answered(code int) { atomic.StoreInt32(&answered, int32(code)+1) } //nolint:gosec // 0 or 1
