// SPDX-License-Identifier: Apache-2.0

package settings

// RecordName is the file in the run directory in which a daemon leaves its [Report].
const RecordName = "install-cni.settings"

// A Report is what is in effect, and what isn't, as JSON.
type Report struct {
	// Settings has no settings without effect, save those that were given.
	Settings []ReportedValue `json:"settings"`
	// Unknown are names that look like settings and are none.
	Unknown []string `json:"unknown,omitempty"`
}

// A ReportedValue is one setting.
type ReportedValue struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Source  Source `json:"source"`
	Default string `json:"default"`
	// Live says that it may change while the daemon runs.
	Live bool `json:"live,omitempty"`
	// Error says what is wrong with the value.
	Error string `json:"error,omitempty"`
	// Offer is a newer value that is not in effect.
	Offer *ReportedOffer `json:"offer,omitempty"`
}

// A ReportedOffer is a value that is not in effect.
type ReportedOffer struct {
	Value  string `json:"value"`
	Source Source `json:"source"`
	// Error is empty for a value that takes effect with the next start.
	Error string `json:"error,omitempty"`
}

// Report is for people and programs. No setting is a secret.
func (l Loaded) Report() Report {
	report := Report{Settings: []ReportedValue{}, Unknown: l.Unknown}
	for _, v := range l.Values {
		if v.Setting.Inert && !v.Source.Given() {
			continue
		}
		r := ReportedValue{
			Name: v.Setting.Name, Value: v.Text, Source: v.Source, Default: v.Setting.Default, Live: v.Setting.Live, Error: errorText(v.Err),
		}
		if v.Offer != nil {
			r.Offer = &ReportedOffer{Value: v.Offer.Text, Source: v.Offer.Source, Error: errorText(v.Offer.Err)}
		}
		report.Settings = append(report.Settings, r)
	}
	return report
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
