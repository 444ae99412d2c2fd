// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/meshcni/meshcni/interception/trace"

type outcomeView struct {
	Namespace   string     `json:"namespace,omitempty"`
	Packet      string     `json:"packet"`
	Verdict     string     `json:"verdict"`
	Link        string     `json:"link,omitempty"`
	Source      string     `json:"source"`
	Destination string     `json:"destination"`
	Listener    string     `json:"listener,omitempty"`
	Original    string     `json:"originalDestination,omitempty"`
	Decisive    *stepView  `json:"decisive,omitempty"`
	Path        []stepView `json:"path"`
}

type stepView struct {
	Hook   string   `json:"hook"`
	Table  string   `json:"table"`
	Chain  string   `json:"chain,omitempty"`
	Rule   string   `json:"rule"`
	Match  string   `json:"match,omitempty"`
	Action string   `json:"action"`
	Why    string   `json:"why"`
	From   []string `json:"from,omitempty"`
}

func viewOutcome(o trace.Outcome) outcomeView {
	view := outcomeView{
		Packet: o.Packet.String(), Verdict: o.Verdict.String(), Link: string(o.Link),
		Source: o.Header.Src.String(), Destination: o.Header.Dst.String(), Listener: o.Listener.Name, Path: []stepView{},
	}
	if o.OriginalDst.IsValid() {
		view.Original = o.OriginalDst.String()
	}
	for _, step := range o.Path {
		view.Path = append(view.Path, viewStep(step))
	}
	if step, ok := o.Decisive(); ok {
		decisive := viewStep(step)
		view.Decisive = &decisive
	}
	return view
}

func viewStep(s trace.Step) stepView {
	view := stepView{
		Hook: s.Hook.String(), Table: s.Table.String(), Chain: string(s.Chain), Rule: string(s.Rule.ID),
		Match: s.Rule.Match.String(), Action: s.Rule.Action.String(), Why: s.Rule.Why,
	}
	for _, source := range s.Rule.From {
		view.From = append(view.From, source.String())
	}
	return view
}
