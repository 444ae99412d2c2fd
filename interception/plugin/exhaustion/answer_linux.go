// SPDX-License-Identifier: Apache-2.0

package exhaustion

import (
	"syscall"
	"unsafe"
)

// runtimeWrite is the function by which the Go runtime writes its own messages, such as why it ends
// the process. The symbol is the runtime's, for other packages to set. The linker sets it here, so
// that it is in effect before main runs.
//
// No ordinary means gives the container runtime an error when the kernel refuses a thread. The Go
// runtime starts threads before main runs, and its failure cannot be recovered: it ends the
// process. debug.SetTraceback and debug.SetCrashOutput change what it writes to standard error, and
// the CNI specification wants an error on standard output. A look at the limits beforehand races
// with the other processes that count towards them, and a parent process would need threads of its
// own.
//
//go:linkname runtimeWrite runtime.overrideWrite
var runtimeWrite = answerExhaustion //nolint:gochecknoglobals // the linker needs a variable; it is never changed

// exhausted is how the Go runtime's message begins if the kernel refuses a thread without which it
// can't go on. Stacks follow, and the container runtime would show nothing else.
const exhausted = "runtime: failed to create new OS thread"

// exhaustedAnswer is that failure as an error of the CNI specification, code 151 in the manual of
// examples/istio-cni.
const exhaustedAnswer = `{"code":151,"msg":"start a thread: the kernel gives the plugin no more threads",` +
	`"details":"end the processes that have used them up, or raise the limit: TasksMax of the container runtime's unit of systemd, ` +
	`pids.max of its control groups, its ulimit -u, or kernel.pid_max and kernel.threads-max of the node"}` + "\n"

// answerExhaustion writes the Go runtime's message. If that says that there are no more threads, it
// answers instead, and ends the process; after the plugin's own answer it only ends the process,
// with that answer's exit code. It runs where no other function of the program may: it allocates
// nothing, and calls only the kernel. The race detector can't run there, so answered is written
// atomically but not read so.
//
//go:nosplit
//go:norace
func answerExhaustion(file uintptr, data unsafe.Pointer, size int32) int32 {
	said := unsafe.String((*byte)(data), size)
	if len(said) >= len(exhausted) && said[:len(exhausted)] == exhausted {
		if code := answered; code > 0 {
			_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, uintptr(code-1), 0, 0)
		}
		answer := exhaustedAnswer
		text, length := unsafe.Pointer(unsafe.StringData(answer)), uintptr(len(answer))
		_, _, _ = syscall.RawSyscall(syscall.SYS_WRITE, uintptr(syscall.Stdout), uintptr(text), length)
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 1, 0, 0)
	}
	written, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, file, uintptr(data), uintptr(size))
	if errno != 0 {
		return -int32(errno)
	}
	return int32(written)
}
