// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
	"github.com/meshcni/meshcni/internal/nfnetlink"
)

// The kernel features that parts of a plan need, as the errors name them.
const (
	subsystem    = "nf_tables (module nf_tables, CONFIG_NF_TABLES)"
	inetTables   = "tables of family inet (CONFIG_NF_TABLES_INET)"
	intervalSets = "sets of address intervals (module nf_tables, nft_set_rbtree before Linux 5.8)"
	networkSets  = "sets of addresses (module nf_tables, nft_set_hash before Linux 5.8)"
	natChains    = "nat chains in family inet (module nft_chain_nat, Linux 5.2 or later)"
	redirection  = "redirection in family inet (module nft_redir, Linux 5.2 or later)"
	translation  = "translation of addresses in family inet (module nft_nat, Linux 5.2 or later)"
	transparency = "transparent proxying (module nft_tproxy, Linux 4.19 or later)"
	rejection    = "rejection in family inet (module nft_reject_inet)"
	logging      = "logging (module nft_log)"
	zones        = "zones of connection tracking (module nft_ct, CONFIG_NF_CONNTRACK_ZONES)"
	tracking     = "connection tracking with marks (module nft_ct, CONFIG_NF_CONNTRACK_MARK)"
	copying      = "copies of some bits of a mark (Linux 6.13 or later, unless the match of the rule fixes those bits)"
	expressions  = "an expression of this rule (module nf_tables)"
)

func chainNeeds(c lower.Chain) string {
	switch {
	case c.Base == nil:
		return inetTables
	case c.Base.Type == "nat":
		return natChains
	default:
		return c.Base.Type + " chains in family inet (CONFIG_NF_TABLES_INET)"
	}
}

func ruleNeeds(r lower.Rule) string {
	if copiesBits(r) {
		return copying
	}
	switch r.Action.(type) {
	case interception.RedirectTo:
		return redirection
	case interception.DNATTo, interception.SNATTo:
		return translation
	case interception.TProxyTo:
		return transparency
	case interception.Reject:
		return rejection
	case interception.Log:
		return logging
	case interception.SetZone:
		return zones
	case interception.NoTrack, interception.SaveMark, interception.RestoreMark, interception.SetConnMark:
		return tracking
	}
	if r.Match.State.Present() || r.Match.ConnMark.Present() || r.Match.Direction != interception.AnyDirection {
		return tracking
	}
	return expressions
}

// error names what the kernel refused. Everything that a part refers to is in the same transaction,
// so what the kernel does not find or support is a feature of its own.
func (p part) error(refusal *nfnetlink.RefusedError) error {
	var err error = refusal
	if refusal.Errno == unix.EPERM { // missing privileges are an error of the batch
		err = fmt.Errorf("%w (another process holds the owner's table for itself: nft list tables shows which)", refusal)
	}
	missing := slices.Contains([]syscall.Errno{unix.EOPNOTSUPP, unix.EAFNOSUPPORT, unix.ENOENT}, refusal.Errno)
	if missing || p.needs == copying && refusal.Errno == unix.EINVAL { // which Linux before 5.6 says
		err = unsupported(p.needs, refusal)
	}
	return &interception.ApplyError{At: p.at, Why: p.why, Err: err}
}

func batchError(refusal *nfnetlink.RefusedError) error {
	switch {
	case errors.Is(refusal, unix.EPERM):
		return fmt.Errorf("nf_tables transaction: %w (it takes CAP_NET_ADMIN in the user namespace that owns the network namespace)", refusal)
	case errors.Is(refusal, unix.EOPNOTSUPP):
		return unsupported(subsystem, refusal)
	default:
		return fmt.Errorf("nf_tables transaction: %w", refusal)
	}
}

// withoutSubsystem converts an error of a query to nf_tables on a kernel that may lack it: then
// nfnetlink knows no such subsystem.
func withoutSubsystem(err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		return unsupported(subsystem, err)
	}
	return err
}

func unsupported(what string, err error) error {
	return fmt.Errorf("%s: %w by this kernel: %w", what, interception.ErrUnsupported, err)
}
