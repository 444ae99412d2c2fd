// SPDX-License-Identifier: Apache-2.0

package standard

import (
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
)

// Candidates returns nftables and iptables, in this order. Each removes the rules that the other
// left; Candidates sets the options' Predecessor for that. On systems other than Linux the error
// wraps [interception.ErrUnsupported].
func Candidates(n nftables.Options, i iptables.Options) ([]choice.Candidate, error) {
	n.Predecessor, i.Predecessor = nil, nil
	oldNFTables, err := nftables.New(n)
	if err != nil {
		return nil, err
	}
	oldIPTables, err := iptables.New(i)
	if err != nil {
		return nil, err
	}
	n.Predecessor, i.Predecessor = oldIPTables, oldNFTables
	newNFTables, err := nftables.New(n)
	if err != nil {
		return nil, err
	}
	newIPTables, err := iptables.New(i)
	if err != nil {
		return nil, err
	}
	return []choice.Candidate{{Name: choice.NFTables, Dataplane: newNFTables}, {Name: choice.IPTables, Dataplane: newIPTables}}, nil
}
