// English is in the sources; Chinese is here.

import { speak } from "../views/say.js";

export const LANGUAGES = [["en", "English"], ["zh", "中文"]];

const CHINESE = {
  "studio": "工作台", "Model": "模型", "Language": "语言", "Predict": "预测", "Text": "文本", "Source": "原文", "Passage": "段落", "Prompt": "提示",
  "First text": "第一段文本", "Second text": "第二段文本", "Question": "问题", "Examples": "示例", "Choose an example …": "选择示例…",
  "Compare with a second text": "与另一段文本比较", "Close the second text": "关闭第二段文本", "Copy the link": "复制链接", "Link copied": "链接已复制",
  "The address bar has the link": "链接在地址栏中", "Heads": "注意力头", "Look": "查看", "Switch off": "关闭", "What a click on a head does": "点击注意力头的作用",
  "Each small map is a head: a row is a token that looks, a column one that is looked at.": "每个小图是一个注意力头：行是发出注意力的词元，列是被关注的词元。",
  "The heads appear here once a text was read.": "读入文本后，这里显示注意力头。", "Heads by layer": "按层排列的注意力头", "layer {}": "第 {} 层", "cut out": "已剪除", "off": "已关闭",
  "Switch this layer off or on": "关闭或打开这一层", "Switch this head off": "关闭这个头", "Switch this head on": "打开这个头", "In this text: {}": "在这段文本中：{}",
  "How to show it": "显示方式", "Lines": "连线", "Across": "横排", "Map": "矩阵", "Rollout of all heads": "全部头的累积", "Which attention": "哪种注意力", "Which text": "哪段文本",
  "self-attention": "自注意力", "cross-attention": "交叉注意力", "encoder": "编码器", "decoder": "解码器", "Part of the text": "文本的部分", "part {} of {}": "第 {} / {} 部分",
  "{} of {} heads are off": "已关闭 {} / {} 个头", "{} tokens are covered": "已遮住 {} 个词元", "All on": "全部打开", "Stop": "停止", "Scoring": "评分中",
  "All heads are on. Click “Switch off” and then heads, or press x on one, to see what changes.": "所有头都已打开。点“关闭”再点注意力头，或在某个头上按 x，看看有什么变化。",
  "Score on validation data": "在验证集上评分", "name of the new model": "新模型的名称", "new name": "新名称", "Save as a pruned model": "另存为剪枝模型", "score": "分数", "all heads": "全部头",
  "this selection": "当前选择", "{} rows; in brackets, the 95 % confidence interval": "{} 行；括号内为 95% 置信区间", "Saved as {}: {} parameters fewer ({}).": "已保存为 {}：减少 {} 个参数（{}）。",
  "No entity was found.": "没有找到实体。", "Entities lost: {}, new: {}.": "失去实体 {} 个，新增 {} 个。", "no answer": "没有答案", "none": "无", "(empty)": "（空）", "classes": "类",
  "The next token": "下一个词元", "Gap {}": "空格 {}", "A vector of {} numbers": "{} 维向量", "Nothing changed.": "没有变化。", "read in {} windows": "分 {} 个窗口读入",
  "{} tokens were left out": "略去 {} 个词元", "{} unknown tokens": "{} 个未知词元", "Instead of “{}”": "“{}”的其他可能",
  "{} tokens; mean probability {}. Click a token for its alternatives.": "{} 个词元；平均概率 {}。点击词元查看其他可能。",
  "Alignment, by cross-attention": "对齐（交叉注意力）", "Point at a word of the translation to see where it comes from.": "指向译文中的词，查看它来自原文哪里。",
  "Point at a word to see what it looks at; click to hold it.": "指向一个词，查看它关注哪里；点击可固定。", "Show the next {} of {} words": "显示后面 {} 个词（共 {} 个）",
  "Target: what looks": "译文：发出注意力", "Source: what is looked at": "原文：被关注", "Reading the row of “{}” …": "正在读取“{}”的一行…", " looks at ": " 关注 ", "words {} ({} …)": "词 {}（{} …）",
  "previous token": "前一个词元", "next token": "后一个词元", "same word": "相同的词", "copies what followed": "复制后续内容", "separator sink": "分隔符", "first-token sink": "首词元",
  "punctuation": "标点", "itself": "自身", "broad": "分散", "near": "邻近", "mixed": "混合", "partly previous token": "部分前一个词元", "partly next token": "部分后一个词元",
  "partly same word": "部分相同的词", "partly copies what followed": "部分复制后续内容", "partly separator sink": "部分分隔符", "partly first-token sink": "部分首词元",
  "partly punctuation": "部分标点", "partly itself": "部分自身",
  "ner": "命名实体识别", "classify": "分类", "match": "文本匹配", "answer": "问答", "translate": "翻译", "summarize": "摘要", "generate": "文本生成", "mask": "填空", "denoise": "去噪", "embed": "向量",
  "That did not work.": "没有成功。", "Type a text first, or choose an example.": "请先输入文本，或选择一个示例。", "Key of the server": "服务器密钥", "Go on": "继续",
  "The server does not answer. Is it still running?": "服务器没有响应。它还在运行吗？", "The server answered with status {}.": "服务器返回状态 {}。",
  "The link names a model that is not served here; this is another one.": "链接中的模型不在此服务器上；这里显示的是另一个模型。",
  "problem: offline": "无法连接。", "problem: no_key": "需要密钥。", "problem: overloaded": "服务器繁忙。", "problem: busy": "正在评分。", "problem: deadline": "超时。",
  "problem: too_large": "文本太长。", "problem: too_many_tokens": "文本太长。", "problem: name_taken": "名称已被使用。", "problem: bad_request": "输入有误。", "problem: cannot_cut": "无法剪除。",
};
const ENGLISH = {
  "problem: offline": "No connection.", "problem: no_key": "This server wants a key.", "problem: overloaded": "The server is busy.", "problem: busy": "Busy.", "problem: deadline": "Too slow.",
  "problem: too_large": "The text is too long.", "problem: too_many_tokens": "The text is too long.", "problem: name_taken": "That name is taken.", "problem: bad_request": "Something in the form is not right.",
  "problem: cannot_cut": "These heads cannot be cut out.",
  "ner": "named entities", "classify": "classification", "match": "matching", "answer": "question answering", "translate": "translation", "summarize": "summaries",
  "generate": "text generation", "mask": "fill the gap", "denoise": "denoising", "embed": "vectors",
};

// Use a language; returns its code.
export function useLanguage(code) {
  const known = code === "zh" ? "zh" : "en";
  speak(known === "zh" ? CHINESE : ENGLISH);
  document.documentElement.lang = known === "zh" ? "zh-CN" : "en";
  return known;
}
