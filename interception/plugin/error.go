// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
)

// The plugin's own error codes; the specification leaves those from 100 on to plugins. The README
// of examples/istio-cni lists them for every mesh. They don't change.
const (
	codeKubeconfigMissing uint = 100
	codeKubeconfig        uint = 101
	codeUnreachable       uint = 102
	codeUntrusted         uint = 103
	codeUnauthorized      uint = 104
	codeForbidden         uint = 105
	codeNotFound          uint = 106
	codeServer            uint = 107
	codeTimeout           uint = 108
	codeAnswer            uint = 109
	codeNotPod            uint = 110
	codeTooLarge          uint = 111
	codeStalePod          uint = 112

	codePod  uint = 120
	codePlan uint = 121

	codeNetnsMissing uint = 130
	codeNotNetns     uint = 131
	codeHostNetns    uint = 132
	codeNetns        uint = 133
	codeFacts        uint = 134

	codeApply       uint = 140
	codeUnsupported uint = 141

	codePanic     uint = 150
	codeProcesses uint = 151 // package exhaustion answers with it

	codeDrift   uint = 160
	codeObserve uint = 161
	codeResult  uint = 162
)

// Error is why a command fails. It reaches the runtime as an error of the CNI specification: Step
// and Err as its message, Remedy as its details.
type Error struct {
	// Code is the specification's, or one of the plugin's own, which are listed in the README of
	// examples/istio-cni.
	Code uint
	// Step is what failed, such as "read configuration".
	Step string
	// Err is why it failed; nil if Step says it all.
	Err error
	// Remedy is what the operator can do.
	Remedy string

	// own says that this package chose the code for [Options].Before.
	own bool
}

// Error returns the step, and why it failed.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Step
	}
	return e.Step + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// As sets target to the error that package skel looks for.
func (e *Error) As(target any) bool {
	to, ok := target.(**types.Error)
	if ok {
		// Joined errors have several lines, which kubelet's log and events make unreadable.
		*to = types.NewError(e.Code, bounded(strings.ReplaceAll(e.Error(), "\n", "; ")), e.Remedy)
	}
	return ok
}

// maxText bounds texts that may quote a pod's author; kubelet shows at most 1 KiB of them.
const maxText = 8 << 10

func bounded(text string) string { return boundedTo(text, maxText) }

func boundedTo(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + fmt.Sprintf(" ... (%d more bytes)", len(text)-most)
}

// sourceFailure returns the error of a [podsource.Chain] as the plugin's, with the code of the last
// source's failure, because that is the API server, which knows every pod. The remedy starts with
// first.
func sourceFailure(err error, first string) error {
	const step = "learn about the pod"
	var all *podsource.ChainError
	if !errors.As(err, &all) || len(all.Failures) == 0 {
		return &Error{Code: types.ErrInternal, Step: step, Err: err}
	}
	code := codeTimeout // no source was left to ask in time
	if last, is := errors.AsType[*podsource.Error](all.Failures[len(all.Failures)-1]); is {
		code = sourceCode(last)
	}
	remedy := all.Remedy()
	if first != "" {
		remedy = first + "; " + remedy
	}
	return &Error{Code: code, Step: step, Err: problem{all}, Remedy: remedy}
}

// problem is the sources' error without the remedy, which is in [Error].Remedy.
type problem struct{ whole *podsource.ChainError }

func (p problem) Error() string { return p.whole.Problem() }

// Unwrap returns the whole error.
func (p problem) Unwrap() error { return p.whole }

func sourceCode(e *podsource.Error) uint {
	for _, known := range []struct {
		kind error
		code uint
	}{
		{podsource.ErrRef, types.ErrInvalidEnvironmentVariables},
		{podsource.ErrUnreachable, codeUnreachable},
		{podsource.ErrUntrusted, codeUntrusted},
		{podsource.ErrUnauthorized, codeUnauthorized},
		{podsource.ErrForbidden, codeForbidden},
		{podsource.ErrNotFound, codeNotFound},
		{podsource.ErrServer, codeServer},
		{podsource.ErrTimeout, codeTimeout},
		{podsource.ErrAnswer, codeAnswer},
		{podsource.ErrNotPod, codeNotPod},
		{podsource.ErrTooLarge, codeTooLarge},
		{podsource.ErrStalePod, codeStalePod},
	} {
		if errors.Is(e.Kind, known.kind) {
			return known.code
		}
	}
	if errors.Is(e, fs.ErrNotExist) {
		return codeKubeconfigMissing
	}
	return codeKubeconfig
}

func resultFailure(plugin string, err error) *Error {
	return &Error{
		Code: types.ErrDecodingFailure, Step: "read prevResult", Err: err,
		Remedy: "the plugin before " + plugin + " in the chain, or the runtime, wrote it: check whether their versions fit together",
	}
}

func parseFailure(ref podsource.Ref, err error) error {
	return &Error{
		Code: codePod, Step: "read what pod " + ref.String() + " asks for", Err: err,
		Remedy: "correct the pod, or what made it (its template, or the injector's settings), and create it again",
	}
}

func netnsFailure(ref podsource.Ref, path string, err error) *Error {
	f := &Error{
		Code: codeNetns, Step: "open the network namespace of pod " + ref.String(), Err: err,
		Remedy: "the plugin has to run as root on the node; in a container set proc_root to where the node's /proc is mounted",
	}
	var missing *fs.PathError
	switch {
	case errors.Is(err, interception.ErrHostNetns):
		f.Code, f.Remedy = codeHostNetns, "nothing was changed: a pod with hostNetwork must not come here, so see the container runtime's log"
	case errors.Is(err, interception.ErrNotNetns):
		f.Code, f.Remedy = codeNotNetns, "the container runtime passes it as CNI_NETNS: see its log"
	case errors.Is(err, fs.ErrNotExist) && errors.As(err, &missing) && missing.Path == path: // and not the host's
		f.Code, f.Remedy = codeNetnsMissing, "nothing has to be done if the pod was deleted meanwhile; otherwise see the container runtime's log"
	}
	return f
}

func applyFailure(ref podsource.Ref, err error) error {
	if own := (*Error)(nil); errors.As(err, &own) {
		return err
	}
	f := &Error{
		Code: codeApply, Step: "write the rules of pod " + ref.String(), Err: err,
		Remedy: "none of the rules is in place, and the pod is not started: see the kernel's log",
	}
	var absent *absentError
	switch {
	case errors.As(err, &absent):
		f.Code, f.Remedy = codeUnsupported, absent.remedy()
	case errors.Is(err, exec.ErrNotFound):
		f.Code, f.Remedy = codeUnsupported, "install the package that is named here on the node, or set dataplane to nftables"
	case errors.Is(err, interception.ErrUnsupported):
		f.Code = codeUnsupported
		f.Remedy = "give the node a kernel with nf_tables and what is named here, or load the module (nf_tables, nft_chain_nat, nft_redir)"
	case errors.Is(err, fs.ErrPermission):
		f.Remedy = "give the plugin CAP_NET_ADMIN: the container runtime has to run it as root"
	}
	return f
}

func observeFailure(ref podsource.Ref, err error) error {
	if own := (*Error)(nil); errors.As(err, &own) {
		return err
	}
	f := &Error{
		Code: codeObserve, Step: "read the rules of pod " + ref.String(), Err: err,
		Remedy: "the plugin has to run as root on the node, with the kernel's nf_tables, or iptables where it uses that",
	}
	if absent := (*absentError)(nil); errors.As(err, &absent) {
		f.Step = "check the rules of pod " + ref.String()
		f.Err = fmt.Errorf("they may be in place, which cannot be checked: %w", err)
		f.Remedy = "the pod was made when the node had it; " + absent.remedy()
	}
	return f
}
