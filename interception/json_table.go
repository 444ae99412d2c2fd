// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"fmt"
	"net/netip"
)

type (
	wireTable struct {
		Kind    string      `json:"kind"`
		Entries []wireEntry `json:"entries,omitempty"`
		Chains  []wireChain `json:"chains,omitempty"`
	}
	wireEntry struct {
		ID     RuleID    `json:"id"`
		Hook   string    `json:"hook"`
		Offset int32     `json:"offset,omitempty"`
		Match  wireMatch `json:"match,omitzero"`
		Chain  ChainName `json:"chain"`
		Why    string    `json:"why"`
	}
	wireChain struct {
		Name  ChainName  `json:"name"`
		Rules []wireRule `json:"rules,omitempty"`
	}
	wireRule struct {
		ID     RuleID     `json:"id"`
		Match  wireMatch  `json:"match,omitzero"`
		Action wireAction `json:"action"`
		Why    string     `json:"why"`
		From   []Source   `json:"from,omitempty"`
	}
	// wireAction has the action's word and its parameters.
	wireAction struct {
		Do    string     `json:"do"`
		Port  Port       `json:"port,omitempty"`
		Addr  netip.Addr `json:"addr,omitzero"`
		Mark  string     `json:"mark,omitempty"`
		Mask  Mark       `json:"mask,omitempty"`
		Zone  uint16     `json:"zone,omitempty"`
		Way   string     `json:"direction,omitempty"`
		Text  string     `json:"text,omitempty"`
		Chain ChainName  `json:"chain,omitempty"`
	}
)

func (w *wireTable) decode(p *Plan) (Object, error) {
	kind, err := word(w.Kind, TableKinds()...)
	if err != nil {
		return nil, err
	}
	table := Table{Kind: kind}
	for _, e := range w.Entries {
		hook, err := word(e.Hook, Hooks()...)
		if err != nil {
			return nil, fmt.Errorf("entry %q: %w", string(e.ID), err)
		}
		match, err := e.Match.decode(p)
		if err != nil {
			return nil, fmt.Errorf("entry %q: %w", string(e.ID), err)
		}
		table.Entries = append(table.Entries, Entry{e.ID, hook, e.Offset, match, e.Chain, e.Why})
	}
	for _, c := range w.Chains {
		chain := Chain{Name: c.Name}
		for _, r := range c.Rules {
			match, matchErr := r.Match.decode(p)
			action, actionErr := r.Action.decode()
			if err := errors.Join(matchErr, actionErr); err != nil {
				return nil, fmt.Errorf("rule %q: %w", string(r.ID), err)
			}
			chain.Rules = append(chain.Rules, Rule{r.ID, match, action, r.Why, r.From})
		}
		table.Chains = append(table.Chains, chain)
	}
	return table, nil
}

// The words of the actions.
const (
	wordAccept      = "accept"
	wordReturn      = "return"
	wordDrop        = "drop"
	wordReject      = "reject"
	wordRedirect    = "redirect"
	wordDNAT        = "dnat"
	wordSNAT        = "snat"
	wordKeepSource  = "keepSource"
	wordTProxy      = "tproxy"
	wordSetMark     = "setMark"
	wordSaveMark    = "saveMark"
	wordRestoreMark = "restoreMark"
	wordSetConnMark = "setConnMark"
	wordSetZone     = "setZone"
	wordNoTrack     = "notrack"
	wordLog         = "log"
	wordJump        = "jump"
)

func encodeAction(a Action) wireAction {
	switch a := a.(type) {
	case RedirectTo:
		return wireAction{Do: wordRedirect, Port: a.Port}
	case DNATTo:
		return wireAction{Do: wordDNAT, Addr: a.Addr, Port: a.Port}
	case SNATTo:
		if a.Keep {
			return wireAction{Do: wordKeepSource, Addr: a.Addr, Port: a.Port}
		}
		return wireAction{Do: wordSNAT, Addr: a.Addr, Port: a.Port}
	case TProxyTo:
		return wireAction{Do: wordTProxy, Port: a.Port, Mark: a.Mark.String()}
	case SetZone:
		if a.Direction == AnyDirection {
			return wireAction{Do: wordSetZone, Zone: a.Zone}
		}
		return wireAction{Do: wordSetZone, Zone: a.Zone, Way: a.Direction.String()}
	case Log:
		return wireAction{Do: wordLog, Text: a.Prefix}
	case Jump:
		return wireAction{Do: wordJump, Chain: a.Chain}
	default:
		return encodeMarkAction(a)
	}
}

func encodeMarkAction(a Action) wireAction {
	switch a := a.(type) {
	case SetMark:
		return wireAction{Do: wordSetMark, Mark: a.Mark.String()}
	case SaveMark:
		return wireAction{Do: wordSaveMark, Mask: a.Mask}
	case RestoreMark:
		return wireAction{Do: wordRestoreMark, Mask: a.Mask}
	case SetConnMark:
		return wireAction{Do: wordSetConnMark, Mark: a.Mark.String()}
	default: // actions without parameters print as their words
		return wireAction{Do: fmt.Sprint(a)}
	}
}

// decode returns the action. It refuses parameters that the action does not have.
func (w wireAction) decode() (Action, error) {
	zone := SetZone{Zone: w.Zone}
	if w.Way != "" {
		direction, err := word(w.Way, DirectionOriginal, DirectionReply)
		if err != nil {
			return nil, err
		}
		zone.Direction = direction
	}
	mark, err := MarkBits{}, error(nil)
	if w.Mark != "" {
		if mark, err = parseMarkBits(w.Mark); err != nil {
			return nil, err
		}
		w.Mark = mark.String()
	}
	action, ok := map[string]Action{
		wordAccept: Accept{}, wordReturn: Return{}, wordDrop: Drop{}, wordReject: Reject{}, wordNoTrack: NoTrack{},
		wordRedirect: RedirectTo{w.Port}, wordDNAT: DNATTo{w.Addr, w.Port}, wordSNAT: SNATTo{Addr: w.Addr, Port: w.Port},
		wordKeepSource: SNATTo{Keep: true},
		wordTProxy:     TProxyTo{w.Port, mark}, wordSetMark: SetMark{mark}, wordSaveMark: SaveMark{w.Mask},
		wordRestoreMark: RestoreMark{w.Mask}, wordSetConnMark: SetConnMark{mark}, wordSetZone: zone,
		wordLog: Log{w.Text}, wordJump: Jump{w.Chain},
	}[w.Do]
	switch {
	case !ok:
		return nil, fmt.Errorf("%q is not an action", w.Do)
	case encodeAction(action) != w:
		return nil, fmt.Errorf("action %s has parameters that it does not take: %+v", w.Do, w)
	default:
		return action, nil
	}
}
