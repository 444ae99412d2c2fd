// SPDX-License-Identifier: Apache-2.0

package event

// Code says what kind of failure an [Error] is, for programs.
type Code string

// The codes.
const (
	// CodeRequest: the request is not one of this protocol, or has no descriptor.
	CodeRequest Code = "request"
	// CodeUnknownPod: the agent has not heard of the pod within the time.
	CodeUnknownPod Code = "unknown-pod"
	// CodeRefused: the namespace is not the pod's, or another one has replaced it; or the node's
	// namespace captures the pods, and this one cannot be told from others by its addresses.
	CodeRefused Code = "refused"
	// CodeUnfinished: the pod is not enrolled yet. The agent goes on with it.
	CodeUnfinished Code = "unfinished"
	// CodeVirtualMachine: the pod's application runs in a virtual machine, and cannot be captured.
	CodeVirtualMachine Code = "virtual-machine"
	// CodeStopped: the agent ends, or has not begun.
	CodeStopped Code = "stopped"
	// CodeProtocol: the answer is not one of this protocol. Only [Enrol] says so.
	CodeProtocol Code = "protocol"
)

// Error is a failure that the agent reports. An [Enroller] returns one to choose the code; any
// other error is reported as [CodeUnfinished].
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }
