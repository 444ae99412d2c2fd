// SPDX-License-Identifier: Apache-2.0

package exhaustion

import (
	"syscall"
	"unsafe"
)

// runtimeWrite is where the Go runtime writes what it has to say itself, which is about its end.
// The symbol is the runtime's, for other packages to set; set here, by the linker, it is in effect
// before main is.
//
// No ordinary means gives the container runtime an error when the kernel refuses a thread. The Go
// runtime starts threads before main runs, and its failure cannot be recovered: it ends the
// process. debug.SetTraceback and debug.SetCrashOutput change what it writes to standard error, and
// the CNI specification wants an error on standard output. A look at the limits beforehand races
// with the other processes that count towards them, and a parent process would need threads of its
// own.
//
//go:linkname runtimeWrite runtime.overrideWrite
var runtimeWrite = answerExhaustion //nolint:gochecknoglobals // the runtime knows no other way; nothing changes it

// exhausted is how the runtime begins when the kernel gives it no thread, without which it can't go
// on. What follows is stacks, which is all that the container runtime would show.
const exhausted = "runtime: failed to create new OS thread"

// exhaustedAnswer is the error of the specification for it, code 151 in the manual of
// examples/istio-cni.
const exhaustedAnswer = `{"code":151,"msg":"start a thread: the kernel gives the plugin no more threads",` +
	`"details":"end the processes that have used them up, or raise the limit: TasksMax of the container runtime's unit of systemd, ` +
	`pids.max of its control groups, its ulimit -u, or kernel.pid_max and kernel.threads-max of the node"}` + "\n"

// answerExhaustion writes what the runtime says, and answers when that is that there are no more
// threads. After the plugin's own answer it ends the process as that says. It runs where nothing
// else of the program may: it allocates nothing, and calls the kernel alone. The race detector may
// not follow it there, and so the atomic write of answered has no atomic read.
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
